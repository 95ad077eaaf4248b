"""The page: its look, its parts, and the words in them."""
