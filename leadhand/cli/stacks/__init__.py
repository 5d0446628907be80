"""`leadhand stack`: nested workflow sessions of a folder."""
