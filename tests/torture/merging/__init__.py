"""The laboratory `merge`: eight databases whose tables come together in one."""
