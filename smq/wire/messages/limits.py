"""Messages about client quotas and client telemetry. Notation: `notation.py`."""

LIMITS = """
DescribeClientQuotas 48 versions 0-1 flexible 1+
    DescribeClientQuotasRequest
        components                             []ComponentData
            entity_type                        string
            match_type                         int8
            match                              string?
        strict                                 bool
    DescribeClientQuotasResponse
        throttle_time_ms                       int32
        error_code                             int16
        error_message                          string?
        entries                                []DescribedEntry?
            entity                             []DescribedEntity
                entity_type                    string
                entity_name                    string?
            values                             []ValueData
                key                            string
                value                          float64

AlterClientQuotas 49 versions 0-1 flexible 1+
    AlterClientQuotasRequest
        entries                                []QuotaEntry
            entity                             []QuotaEntity
                entity_type                    string
                entity_name                    string?
            ops                                []QuotaOp
                key                            string
                value                          float64
                remove                         bool
        validate_only                          bool
    AlterClientQuotasResponse
        throttle_time_ms                       int32
        entries                                []AlteredEntry
            error_code                         int16
            error_message                      string?
            entity                             []AlteredEntity
                entity_type                    string
                entity_name                    string?
"""
