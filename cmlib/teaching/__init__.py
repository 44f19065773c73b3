"""What the book's chapters are made with: page helpers, exercise checks, the runner and the lint of the notebooks."""
