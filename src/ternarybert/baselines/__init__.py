"""The methods that the paper compares with, each from its own paper, behind the same interface as ours."""
