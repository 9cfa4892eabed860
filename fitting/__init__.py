"""What it means: scaling laws, speed-ups and figures; frames in, frozen results out."""
