"""What is read: numbers in print, and the frame and style that all pages share. Light to import."""
