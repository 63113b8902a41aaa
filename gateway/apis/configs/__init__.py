"""What has configs: topics, brokers, loggers, client metrics and groups; a file for each."""
