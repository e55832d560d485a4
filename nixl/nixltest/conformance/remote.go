package conformance

import (
	"io"
	"net/rpc"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// Serve answers a RemoteTarget in another process until the connection ends.
func Serve(connection io.ReadWriteCloser, target Target) {
	server := rpc.NewServer()
	if err := server.Register(&Service{target}); err != nil {
		panic(err) // a method below has not the form that net/rpc wants
	}
	server.ServeConn(connection)
}

// Service is Target in the form that net/rpc wants.
type Service struct{ target Target }

// Memory is the argument of Allocate.
type Memory struct {
	Size int
	Seed byte
}

// Letter is the argument of Notify.
type Letter struct {
	Agent   string
	Payload []byte
}

// None stands for no argument or no reply.
type None struct{}

func (s *Service) Allocate(m Memory, reply *nixl.Desc) (err error) {
	*reply, err = s.target.Allocate(m.Size, m.Seed)
	return err
}

func (s *Service) Free(d nixl.Desc, _ *None) error { return s.target.Free(d) }

func (s *Service) Sum(d nixl.Desc, reply *uint64) (err error) {
	*reply, err = s.target.Sum(d)
	return err
}

func (s *Service) Metadata(_ None, reply *[]byte) (err error) {
	*reply, err = s.target.Metadata()
	return err
}

func (s *Service) Load(metadata []byte, reply *string) (err error) {
	*reply, err = s.target.Load(metadata)
	return err
}

func (s *Service) Unload(agent string, _ *None) error { return s.target.Unload(agent) }

func (s *Service) Notify(l Letter, _ *None) error { return s.target.Notify(l.Agent, l.Payload) }

func (s *Service) Watch(d nixl.Desc, _ *None) error { return s.target.Watch(d) }

func (s *Service) Arrivals(_ None, reply *[]Arrival) (err error) {
	*reply, err = s.target.Arrivals()
	return err
}

func (s *Service) Poll(every time.Duration, _ *None) error { return s.target.Poll(every) }

// RemoteTarget is a Target in another process, which runs Serve.
type RemoteTarget struct {
	client *rpc.Client
	kill   func() error
}

// NewRemoteTarget speaks to a target over the connection. kill ends its process.
func NewRemoteTarget(connection io.ReadWriteCloser, kill func() error) *RemoteTarget {
	return &RemoteTarget{rpc.NewClient(connection), kill}
}

func (t *RemoteTarget) Allocate(size int, seed byte) (d nixl.Desc, err error) {
	err = t.client.Call("Service.Allocate", Memory{size, seed}, &d)
	return d, err
}

func (t *RemoteTarget) Free(d nixl.Desc) error {
	return t.client.Call("Service.Free", d, &None{})
}

func (t *RemoteTarget) Sum(d nixl.Desc) (sum uint64, err error) {
	err = t.client.Call("Service.Sum", d, &sum)
	return sum, err
}

func (t *RemoteTarget) Metadata() (metadata []byte, err error) {
	err = t.client.Call("Service.Metadata", None{}, &metadata)
	return metadata, err
}

func (t *RemoteTarget) Load(metadata []byte) (agent string, err error) {
	err = t.client.Call("Service.Load", metadata, &agent)
	return agent, err
}

func (t *RemoteTarget) Unload(agent string) error {
	return t.client.Call("Service.Unload", agent, &None{})
}

func (t *RemoteTarget) Notify(agent string, payload []byte) error {
	return t.client.Call("Service.Notify", Letter{agent, payload}, &None{})
}

func (t *RemoteTarget) Watch(d nixl.Desc) error {
	return t.client.Call("Service.Watch", d, &None{})
}

func (t *RemoteTarget) Arrivals() (arrivals []Arrival, err error) {
	err = t.client.Call("Service.Arrivals", None{}, &arrivals)
	return arrivals, err
}

func (t *RemoteTarget) Poll(every time.Duration) error {
	return t.client.Call("Service.Poll", every, &None{})
}

func (t *RemoteTarget) Kill() error { return t.kill() }

// Close ends the connection.
func (t *RemoteTarget) Close() error { return t.client.Close() }
