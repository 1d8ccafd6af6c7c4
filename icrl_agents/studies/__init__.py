"""Studies: whole experiments, from a frozen configuration to a folder of rows and figures."""
