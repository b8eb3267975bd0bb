"""The only SQL: plain functions of a session, one module per group of tables; nothing here commits, no row leaves."""
