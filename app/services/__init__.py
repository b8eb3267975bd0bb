"""Use cases as plain functions: resolve names, call the domain, save."""
