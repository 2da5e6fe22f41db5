"""The page of results, made from run folders: what sections share, and a module for each kind of section."""
