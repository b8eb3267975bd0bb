"""HTTP and nothing else: no SQL, no arithmetic; errors become problem details in one place (`errors.py`)."""
