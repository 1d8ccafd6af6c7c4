"""Values in an RKHS, recovered in context: against samples, depth, and another kernel than the value's."""
