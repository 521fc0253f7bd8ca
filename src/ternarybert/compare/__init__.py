"""Which method, how many bits, what does it cost: a grid of students of one teacher, as a table and a figure."""
