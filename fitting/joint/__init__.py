"""A comparison as one model: all runs of two methods in one likelihood. runs > curve > noise > shift > answer."""
