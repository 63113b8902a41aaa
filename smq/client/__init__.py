"""The SDK behind `import smq`: producers and consumers, through shared memory or Kafka's protocol."""
