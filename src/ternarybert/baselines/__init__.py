"""The methods that the paper compares with, each after the idea of its own paper, behind the same interface as ours."""
