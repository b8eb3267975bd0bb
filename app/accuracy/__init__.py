"""The planner's answers against recorded start-ups and runs."""
