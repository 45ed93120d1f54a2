"""One run: from a config to a directory that can be resumed, evaluated and exported."""
