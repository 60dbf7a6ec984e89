"""What a job is started with: the variables that decide whether evidence is left, by torch release and launcher."""
