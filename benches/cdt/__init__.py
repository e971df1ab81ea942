"""CDT: codecs, and pulls over NATS."""
