// A DCP client in Java, with JeroMQ: it sends one request to the service "echo" and prints the reply.
// java -cp /usr/share/java/jeromq.jar DcpClient.java tcp://127.0.0.1:5555

import java.util.Arrays;
import org.zeromq.ZMQ;
import org.zeromq.ZMsg;

public class DcpClient {
    static final byte[] PROTOCOL = {'D', 'G', 'B', 'X', 1};
    static final byte[] REQUEST = {4};
    static final byte[] REPLY = {5};

    public static void main(String[] arguments) {
        ZMQ.Context context = ZMQ.context(1);
        ZMQ.Socket dealer = context.socket(ZMQ.DEALER);
        dealer.setReceiveTimeOut(30_000);
        dealer.setLinger(0);
        dealer.connect(arguments[0]);

        ZMsg request = new ZMsg();
        request.add("");           // address delimiter
        request.add(PROTOCOL);
        request.add(REQUEST);
        request.add("echo");       // service name
        request.add("");           // client address delimiter; the broker inserts the address in front of it
        request.add("request 1");  // metadata: any number of non-empty parts, which the reply brings back
        request.add("");           // metadata delimiter
        request.add("hello");      // data: any number of parts
        request.send(dealer);

        // Delimiter, protocol, type, client address, delimiter, metadata, delimiter, data.
        ZMsg reply = ZMsg.recvMsg(dealer);
        dealer.close();
        context.term();
        byte[][] parts = new byte[0][];
        if (reply != null)
            parts = reply.stream().map(frame -> frame.getData()).toArray(byte[][]::new);
        if (parts.length != 8 || !Arrays.equals(parts[1], PROTOCOL) || !Arrays.equals(parts[2], REPLY)) {
            System.err.println("no reply came");
            System.exit(1);
        }
        System.out.println("metadata " + new String(parts[5]) + ", data " + new String(parts[7]));
    }
}
