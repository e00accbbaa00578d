package cli

// PluginNamespace is the namespace in which "kubectl dupip" looks for a reporter unless people name another: the one into which the
// README installs dupip.
const PluginNamespace = "dupip"

// Plugin returns how commands of "kubectl dupip" begin that ask the reporter of a namespace. The chart has the same for its alerts.
func Plugin(namespace string) string {
	if namespace == "" || namespace == PluginNamespace {
		return "kubectl dupip"
	}
	return "kubectl dupip --dupip-namespace " + namespace
}
