"""Third-party models, one file each: the only place that imports them."""
