"""Text that the ecosystem writes -> domain values."""
