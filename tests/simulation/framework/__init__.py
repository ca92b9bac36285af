"""What the schedules, the mutants and both programs are built from."""
