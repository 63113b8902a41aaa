"""Messages about users and their SCRAM credentials. Notation: `notation.py`."""

USERS = """
DescribeUserScramCredentials 50 versions 0-0 flexible 0+
    DescribeUserScramCredentialsRequest
        users                                  []UserName?
            name                               string
    DescribeUserScramCredentialsResponse
        throttle_time_ms                       int32
        error_code                             int16
        error_message                          string?
        results                                []DescribeUserScramCredentialsResult
            user                               string
            error_code                         int16
            error_message                      string?
            credential_infos                   []CredentialInfo
                mechanism                      int8
                iterations                     int32

AlterUserScramCredentials 51 versions 0-0 flexible 0+
    AlterUserScramCredentialsRequest
        deletions                              []ScramCredentialDeletion
            name                               string
            mechanism                          int8
        upsertions                             []ScramCredentialUpsertion
            name                               string
            mechanism                          int8
            iterations                         int32
            salt                               bytes
            salted_password                    bytes
    AlterUserScramCredentialsResponse
        throttle_time_ms                       int32
        results                                []AlterUserScramCredentialsResult
            user                               string
            error_code                         int16
            error_message                      string?
"""
