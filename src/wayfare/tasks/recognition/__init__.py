"""Parts of the task `objects`."""
