"""The SDK behind `import smq`: shared memory on the broker's host, Kafka's protocol elsewhere."""
