package scenarios

var mustStayQuiet = []Scenario{}
