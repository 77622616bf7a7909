"""The stages of a build: plan, count, train, encode, replay."""
