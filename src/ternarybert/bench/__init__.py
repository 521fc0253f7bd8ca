"""Time a packed model side by side with the engines that users could install instead, on one machine."""
