"""The fields of each message and version, as tables; the codecs are generated from them.

The facts are Apache Kafka 4.3's (https://kafka.apache.org/protocol). After a change run
`python -m smq.wire.generate`; `smq.wire.messages.notation` explains how to read the lines.
"""
