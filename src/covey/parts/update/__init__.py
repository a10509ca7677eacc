"""What the server adds to the combined model: corrections and momentum."""
