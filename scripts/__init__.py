"""Programs for those who work on the project, and the package that makes the golden vectors."""
