"""What is trained: pure torch; knows no file, no cluster, no database."""
