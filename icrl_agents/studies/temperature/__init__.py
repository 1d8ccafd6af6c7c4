"""The kernel-temperature study: which length scale each domain wants, and whether domains share one."""
