"""What the tests of Room share: parts, armed crash points, peers with faults."""
