"""What tests share: the other side of each protocol, packed by hand over raw sockets, and ways to wait."""
