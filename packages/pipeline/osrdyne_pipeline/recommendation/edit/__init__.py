"""The recommendation as a `change` of a settings file, of whose text it replaces `lines`."""
