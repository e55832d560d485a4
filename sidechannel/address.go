package sidechannel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Like libzmq, names and "*" mean IPv4, so that both ends of "localhost" agree on one
// address; IPv6 is for literal addresses and for names that have nothing else.
func networks(host string) []string {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		return []string{"tcp"} // with "::" this includes IPv4
	}
	return []string{"tcp4", "tcp6"}
}

func address(host string, port int) string {
	return net.JoinHostPort(strings.TrimPrefix(host, "*"), strconv.Itoa(port))
}

func listen(host string, port int) (l net.Listener, err error) {
	for _, network := range networks(host) {
		if l, err = net.Listen(network, address(host, port)); !wrongFamily(err) {
			break
		}
	}
	return l, err
}

func dial(ctx context.Context, host string, port int) (conn net.Conn, err error) {
	var dialer net.Dialer
	for _, network := range networks(host) {
		if conn, err = dialer.DialContext(ctx, network, address(host, port)); !wrongFamily(err) {
			break
		}
	}
	return conn, err
}

// wrongFamily reports whether a name has no address of the family that was asked for.
func wrongFamily(err error) bool {
	var noAddress *net.AddrError
	return errors.As(err, &noAddress)
}
