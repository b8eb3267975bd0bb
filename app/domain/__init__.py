"""Pure values and functions: no input or output, no clock, no randomness without a seed, no logging."""
