"""How a measured program reports its steps; its folder is all that a program needs of us."""
