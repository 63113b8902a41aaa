"""A shop's orders through SeaweedMQ's services: `orders.py` in Python, `main.go` in Go."""
