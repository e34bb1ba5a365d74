"""What is `wanted` of a pool's settings as a `change` of a file, of whose text it replaces `lines`. `settings_file`
changes that of a daemon.
"""
