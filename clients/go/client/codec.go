package client

import "google.golang.org/protobuf/proto"

// codec encodes messages with the protobuf package that they were generated for. Older packages of
// grpc, such as Debian's, have a codec for another one.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(message interface{}) ([]byte, error) {
	return proto.Marshal(message.(proto.Message))
}

func (codec) Unmarshal(data []byte, message interface{}) error {
	return proto.Unmarshal(data, message.(proto.Message))
}
