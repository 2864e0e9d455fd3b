"""Pure rules that more than one service uses."""
