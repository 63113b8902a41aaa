"""SeaweedMQ's messages: `.proto` files, and the code that `smq.agent.generate` makes of them."""
