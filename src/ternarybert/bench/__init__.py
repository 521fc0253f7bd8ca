"""Side by side with the engines that users could install instead, in one run on one machine."""
