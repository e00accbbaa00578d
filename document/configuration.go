package document

// Configuration is what "dupip config check" prints: what a configuration file says, with the defaults.
type Configuration struct {
	File     string          `json:"file"`
	Networks []NetworkStatus `json:"networks"`
	Shared   []string        `json:"shared"`            // addresses and CIDRs
	Ignored  []string        `json:"ignoredInterfaces"` // patterns
	Limits   Limits          `json:"limits"`
}

// Limits are those of the configuration, by the keys of the file.
type Limits struct {
	Bindings             int `json:"bindings"`
	BindingsPerInterface int `json:"bindingsPerInterface"`
	History              int `json:"history"`
	VerifyPerSecond      int `json:"verifyPerSecond"`
	RefreshPerSecond     int `json:"refreshPerSecond"`
}
