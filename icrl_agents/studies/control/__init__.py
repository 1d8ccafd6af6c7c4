"""The control study: in-context critics against learned ones, in return per step and in time."""
